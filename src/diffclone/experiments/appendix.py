"""The paper's tables of hyperparameters, one column per task, and the methods they define."""

from dataclasses import dataclass, replace
from typing import final

from diffclone.guides import DiffusionGuide, EnergyGuide, GANGuide, VAEGuide
from diffclone.methods import BC, DBC, IBC, DiffusionPolicy
from diffclone.model import Normalisation, Training
from diffclone.nn import Network


@final
@dataclass(frozen=True)
class AppendixColumn:
    """The hyperparameters of one task."""

    pairs: int
    """The size of the paper's demonstrations: one epoch is one pass over them."""
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
    """DBC's learning rate in the released configuration, if it differs."""
    normalisation: Normalisation = "z-score"

    def policy_training(self, *, released: bool = False) -> Training:
        """Return the schedule of a policy. The released code drops the last partial batch of an epoch."""
        lr = self.release_lr if released and self.release_lr else self.lr
        return Training(updates=self.epochs * (self.pairs // 128), lr=lr, eps=1e-12)

    def guide(self, *, released: bool) -> DiffusionGuide:
        """Return the diffusion model. The released code keeps the last partial batch of an epoch here."""
        batch = 128 if released else self.guide_batch
        updates = self.guide_epochs * -(-self.pairs // batch)
        training = Training(updates=updates, batch=batch, lr=self.guide_lr, decay="constant")
        t_sampling = "antithetic" if released else "uniform"
        return DiffusionGuide(training=training, width=self.guide_width, conditioning="table", t_sampling=t_sampling)

    def bc(self) -> BC:
        """Return BC, which is the same in the paper and in the released code."""
        return BC(training=self.policy_training(), network=self.network, normalisation=self.normalisation)

    def dbc(self, *, released: bool) -> DBC:
        """Return DBC. Paper and released code differ in the gate, in the sampling of t and in a few values."""
        return DBC(
            training=self.policy_training(released=released),
            network=self.network,
            coefficient=self.coefficient,
            away=0.0,
            gate="batch" if released else "sample",
            guide=self.guide(released=released),
            normalisation=self.normalisation,
        )

    def ibc(self) -> IBC:
        """Return implicit BC. The paper gives no number of counter-examples; its energy guide has 64."""
        updates = self.ibc_epochs * (self.pairs // self.ibc_batch)
        training = Training(updates=updates, batch=self.ibc_batch, lr=self.ibc_lr)
        return IBC(training=training, network=self.ibc_network, normalisation=self.normalisation)

    def diffusion_policy(self) -> DiffusionPolicy:
        """Return a diffusion policy with a thousand steps and no moving average: the paper mentions none."""
        return DiffusionPolicy(
            training=Training(updates=self.diffusion_epochs * (self.pairs // 128), lr=self.diffusion_lr),
            width=self.diffusion_width,
            predicts="noise",
            sampler="ancestral",
            normalisation=self.normalisation,
        )


def energy_network(width: int, depth: int = 1) -> Network:
    """Return one of the shallow networks of implicit BC."""
    return Network(width=width, depth=depth, activation="relu", init="default")


APPENDIX: dict[str, AppendixColumn] = {
    "maze": AppendixColumn(
        18_525, Network(width=256, depth=3), 2000, 5e-5, 30.0, 8000, 1e-4, 128,
        energy_network(1024), 10_000, 1e-4, 256, 20_000, 2e-4,
    ),
    "fetch-pick": AppendixColumn(
        10_000, Network(width=750, depth=2), 5000, 5e-6, 0.5, 10_000, 1e-3, 1024,
        energy_network(1024), 15_000, 5e-6, 1200, 15_000, 1e-5, ibc_batch=512,
    ),
    "hand-rotate": AppendixColumn(
        10_000, Network(width=512, depth=2), 5000, 1e-4, 10.0, 10_000, 3e-5, 2048,
        energy_network(512), 15_000, 1e-5, 2100, 30_000, 1e-4,
    ),
    "cheetah": AppendixColumn(
        5000, Network(width=256, depth=2), 1000, 1e-4, 0.2, 8000, 2e-4, 1024,
        energy_network(512, depth=2), 10_000, 1e-4, 1200, 10_000, 1e-4, release_lr=2e-4,
    ),
    "walker": AppendixColumn(
        5000, Network(width=1024, depth=2), 1000, 1e-4, 0.2, 8000, 2e-4, 1024,
        energy_network(1024), 10_000, 8e-5, 1200, 10_000, 1e-4,
    ),
    "ant-reach": AppendixColumn(
        25_000, Network(width=1024, depth=2), 10_000, 6e-3, 1.0, 20_000, 2e-4, 1024,
        energy_network(1200), 30_000, 5e-5, 1200, 30_000, 1e-5, guide_batch=1024, normalisation="none",
    ),
}  # fmt: skip


def other_guides(task: str) -> dict[str, DBC]:
    """Return DBC with the paper's other guides.

    The paper gives their settings for Maze, where policies have two hidden ReLU layers. On another task the guides are
    the same, with that task's network, policy schedule and λ.
    """
    column, maze = APPENDIX[task], task == "maze"
    network = Network(width=256, depth=2, activation="relu", init="default") if maze else column.network
    policy = DBC(training=column.policy_training(), network=network, away=0.0, normalisation=column.normalisation)
    energy = EnergyGuide(
        training=Training(updates=8000 * -(-column.pairs // 128), lr=5e-4, decay="exponential", remains=0.99**80)
    )
    vae = VAEGuide(training=Training(updates=100_000, lr=1e-4, decay="constant", clip=None), kl_weight=1.0)
    gan = GANGuide()
    if not maze:  # as in Maze, the discriminator has the policy's learning rate
        gan = replace(gan, training=replace(gan.training, lr=column.lr))
    constant = replace(policy.training, decay="constant")
    own = column.coefficient
    return {
        "energy": replace(policy, coefficient=0.1 if maze else own, guide=energy, subtract_expert=False),
        "vae": replace(policy, coefficient=1.0 if maze else own, guide=vae),
        "gan": replace(policy, training=constant, coefficient=0.2 if maze else own, guide=gan, subtract_expert=False),
    }
