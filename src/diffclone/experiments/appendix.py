"""The paper's tables of hyper-parameters, a column a task, made into methods."""

from dataclasses import dataclass, replace
from typing import final

from diffclone.guides import DiffusionGuide, EnergyGuide, GANGuide, VAEGuide
from diffclone.methods import BC, DBC, IBC, DiffusionPolicy
from diffclone.model import Normalisation, Training
from diffclone.nn import Network


@final
@dataclass(frozen=True)
class Appendix:
    """A task's column."""

    pairs: int
    """Of the paper's demonstrations: an epoch is a pass over them."""
    network: Network
    epochs: int
    lr: float
    coefficient: float
    guide_epochs: int
    guide_lr: float
    guide_width: int
    ibc_network: Network
    ibc_epochs: int
    ibc_lr: float
    diffusion_width: int
    diffusion_epochs: int
    diffusion_lr: float
    guide_batch: int = 128
    ibc_batch: int = 128
    release_lr: float | None = None
    """DBC's in the released configuration, where it differs."""
    release_guide_batch: int = 128
    normalisation: Normalisation = "z-score"

    def policy(self, *, released: bool = False) -> Training:
        """The released policy loop drops the last partial batch of an epoch."""
        lr = self.release_lr if released and self.release_lr else self.lr
        return Training(updates=self.epochs * (self.pairs // 128), lr=lr, eps=1e-12)

    def guide(self, *, released: bool) -> DiffusionGuide:
        """The released guide loop keeps it."""
        batch = self.release_guide_batch if released else self.guide_batch
        updates = self.guide_epochs * -(-self.pairs // batch)
        training = Training(updates=updates, batch=batch, lr=self.guide_lr, decay="constant")
        t_sampling = "antithetic" if released else "uniform"
        return DiffusionGuide(training=training, width=self.guide_width, conditioning="table", t_sampling=t_sampling)

    def bc(self) -> BC:
        """The paper's and the released code's agree."""
        return BC(training=self.policy(), network=self.network, normalisation=self.normalisation)

    def dbc(self, *, released: bool) -> DBC:
        """The two differ in the gate, in t, and in a few numbers."""
        return DBC(
            training=self.policy(released=released),
            network=self.network,
            coefficient=self.coefficient,
            away=0.0,
            gate="batch" if released else "sample",
            guide=self.guide(released=released),
            normalisation=self.normalisation,
        )

    def ibc(self) -> IBC:
        """The paper does not say how many counter-examples; its energy guide has 64."""
        updates = self.ibc_epochs * (self.pairs // self.ibc_batch)
        training = Training(updates=updates, batch=self.ibc_batch, lr=self.ibc_lr)
        return IBC(training=training, network=self.ibc_network, normalisation=self.normalisation)

    def diffusion_policy(self) -> DiffusionPolicy:
        """All thousand steps, and no moving average: the paper speaks of none."""
        training = Training(updates=self.diffusion_epochs * (self.pairs // 128), lr=self.diffusion_lr)
        return DiffusionPolicy(
            training=training,
            width=self.diffusion_width,
            sampler="ancestral",
            normalisation=self.normalisation,
        )


def energies(width: int, depth: int = 1) -> Network:
    """The shallow networks of implicit BC."""
    return Network(width=width, depth=depth, activation="relu", init="default")


APPENDIX: dict[str, Appendix] = {
    "maze": Appendix(
        18_525, Network(width=256, depth=3), 2000, 5e-5, 30.0, 8000, 1e-4, 128,
        energies(1024), 10_000, 1e-4, 256, 20_000, 2e-4,
    ),
    "fetch-pick": Appendix(
        10_000, Network(width=750, depth=2), 5000, 5e-6, 0.5, 10_000, 1e-3, 1024,
        energies(1024), 15_000, 5e-6, 1200, 15_000, 1e-5, ibc_batch=512,
    ),
    "hand-rotate": Appendix(
        10_000, Network(width=512, depth=2), 5000, 1e-4, 10.0, 10_000, 3e-5, 2048,
        energies(512), 15_000, 1e-5, 2100, 30_000, 1e-4,
    ),
    "cheetah": Appendix(
        5000, Network(width=256, depth=2), 1000, 1e-4, 0.2, 8000, 2e-4, 1024,
        energies(512, depth=2), 10_000, 1e-4, 1200, 10_000, 1e-4, release_lr=2e-4,
    ),
    "walker": Appendix(
        5000, Network(width=1024, depth=2), 1000, 1e-4, 0.2, 8000, 2e-4, 1024,
        energies(1024), 10_000, 8e-5, 1200, 10_000, 1e-4,
    ),
    "ant-reach": Appendix(
        25_000, Network(width=1024, depth=2), 10_000, 6e-3, 1.0, 20_000, 2e-4, 1024,
        energies(1200), 30_000, 5e-5, 1200, 30_000, 1e-5, guide_batch=1024, normalisation="none",
    ),
}  # fmt: skip


def guided(task: str) -> dict[str, DBC]:
    """The paper's other guides. It gives their settings for Maze, where policies have two hidden layers of ReLU.

    For another task the guides are the same; the network, the schedule of the policy and λ are the task's own.
    """
    column = APPENDIX[task]
    maze = task == "maze"
    network = Network(width=256, depth=2, activation="relu", init="default") if maze else column.network
    policy = DBC(training=column.policy(), network=network, away=0.0, normalisation=column.normalisation)
    energy = EnergyGuide(
        training=Training(updates=8000 * -(-column.pairs // 128), lr=5e-4, decay="exponential", remains=0.99**80)
    )
    vae = VAEGuide(training=Training(updates=100_000, lr=1e-4, decay="constant", clip=None), kl_weight=1.0)
    gan = GANGuide()
    if not maze:
        # A discriminator of the policy's own learning rate, as in Maze.
        gan = replace(gan, training=replace(gan.training, lr=column.lr))
    steady = replace(policy.training, decay="constant")
    own = column.coefficient
    return {
        "energy": replace(policy, coefficient=0.1 if maze else own, guide=energy, subtract_expert=False),
        "vae": replace(policy, coefficient=1.0 if maze else own, guide=vae),
        "gan": replace(policy, training=steady, coefficient=0.2 if maze else own, guide=gan, subtract_expert=False),
    }
