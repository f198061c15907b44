"""The claims of the paper that experiments can test, in its order.

Margins were fixed before the results of the tests were known: 2 points of success and 2 % of the expert's return, or as
the claim says.
"""

from diffclone.experiments.catalogue.claim_tests import (
    OTHERS,
    PIXELS,
    RATIOS,
    SETTINGS,
    augmentation_test,
    both,
    coefficient_test,
    compare_times,
    every_level,
    every_size,
    expert_term_test,
    guide_improves_bc,
    guides_test,
    ibc_test,
    loss_of_success,
    losses_test,
    minus,
    on_recipe,
    on_schedule,
    on_study,
    reconstruction_test,
    spiral_test,
    with_bc_test,
)
from diffclone.experiments.catalogue.scores import TASKS
from diffclone.experiments.claims import Claim, MeasuredRatio

SMALL_STUDY = "In the small study a try has 24 episodes, and Diffusion Policy has at most 8,000 updates."
GUIDED = ("maze", "fetch-pick")
"""Tasks on which the paper compares guides."""
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "above-bc",
        "DBC imitates better than BC in navigation and manipulation.",
        "Section 5.4, Table 2",
        "above",
        (
            *(on_recipe(t, "dbc", "bc", headroom=True) for t in ("maze", "fetch-pick", "hand-rotate", "ant-reach")),
            *(
                on_study(t, "DBC (paper)", "BC", headroom=True)
                for t in ("maze", "fetch-pick", "hand-rotate", "ant-reach")
            ),
        ),
        note="On FetchPick and HandRotate, BC scores higher with a shorter schedule than with the paper's.",
    ),
    Claim(
        "level-with-bc",
        "DBC is at least level with BC in locomotion.",
        "Section 5.4, Table 2",
        "level",
        (
            *(on_recipe(t, "dbc", "bc") for t in ("cheetah", "walker")),
            *(on_study(t, "DBC (paper)", "BC") for t in ("cheetah", "walker")),
        ),
    ),
    Claim(
        "level-with-diffusion-policy",
        "DBC is at least level with Diffusion Policy where demonstrations are multimodal.",
        "Section 5.4, Table 2",
        "level",
        tuple(
            on_study(task, "DBC (paper)", "Diffusion Policy", small=small)
            for small in (False, True)
            for task in ("maze", "hand-rotate")
        ),
        note=SMALL_STUDY,
    ),
    Claim(
        "above-diffusion-policy",
        "DBC is better than Diffusion Policy on the other tasks.",
        "Section 5.4, Table 2",
        "above",
        tuple(
            on_study(task, "DBC (paper)", "Diffusion Policy", small=small)
            for small in (False, True)
            for task in ("fetch-pick", "cheetah", "walker", "ant-reach")
        ),
        note=SMALL_STUDY,
    ),
    Claim(
        "ibc-last",
        "Implicit BC is worse than every other method.",
        "Section 5.4, Table 2",
        "above",
        both(lambda small: [ibc_test(task, small=small) for task in SETTINGS]),
        note=SMALL_STUDY,
    ),
    Claim(
        "multimodality",
        "The demonstrations of Maze are more multimodal than those of locomotion.",
        "Section 5.3, Table 1",
        "above",
        (MeasuredRatio("majority ratio, Maze over Walker", RATIOS["Maze"], RATIOS["Walker"], "ratio", most=0.98),),
        note="A property of the demonstrations; it is measured, not tested.",
    ),
    Claim(
        "fast",
        "DBC acts as fast as BC.",
        "Section 5.4",
        "within",
        (compare_times("DBC", "BC", most=1.1),),
        note="Measured on one CPU thread. The bound is 10 %.",
    ),
    Claim(
        "faster",
        "DBC acts faster than Implicit BC and Diffusion Policy.",
        "Section 5.4",
        "above",
        tuple(compare_times(name, "DBC", least=1.1) for name in ("Implicit BC", "Diffusion Policy")),
        note="Measured on one CPU thread; the paper measured on a GPU.",
    ),
    Claim(
        "generalises-best",
        "DBC has the highest success at every scale of block and goal regions.",
        "Section 5.5, Table 3",
        "above",
        both(lambda small: [every_level(other, small=small) for other in OTHERS]),
        note="With the brief schedule BC is trained past its peak.",
    ),
    Claim(
        "loses-least",
        "DBC loses less success than the others as the regions grow from 1 to 2.",
        "Section 5.5, Table 3",
        "above",
        both(lambda small: [loss_of_success(other, small=small) for other in OTHERS]),
        note="In points of success; the paper gives percent of the success at 1.",
    ),
    Claim(
        "guide-alone-fails",
        "On Spiral a policy that learns from the diffusion model alone fails; with BC it succeeds.",
        "Section 5.6, Figure 4",
        "above",
        both(lambda small: [spiral_test(name, "DM", small=small) for name in ("BC", "DBC")]),
    ),
    Claim(
        "best-guide",
        "Together with BC, the diffusion model is a better guide than energy model, VAE and GAN.",
        "Appendix C.1, Tables 4 and 5",
        "above",
        both(lambda small: [guides_test(task, "with", small=small) for task in GUIDED]),
        note="Beside the brief schedule the GAN has the paper's; in the small one it has 12,000 updates.",
    ),
    Claim(
        "best-guide-alone",
        "Without BC, the diffusion model is the best guide.",
        "Appendix C.1, Tables 4 and 5",
        "above",
        both(lambda small: [guides_test(task, "without", small=small) for task in GUIDED]),
        note="In the paper's own table for FetchPick the GAN is above it.",
    ),
    Claim(
        "bc-improves-guides",
        "Adding the BC loss improves every guide.",
        "Appendix C.1, Tables 4 and 5",
        "above",
        both(lambda small: [with_bc_test(task, small=small) for task in GUIDED]),
    ),
    Claim(
        "guides-improve-bc",
        "The diffusion model improves BC with the same network and schedule.",
        "Appendix C.1, Tables 4 and 5",
        "above",
        both(lambda small: [guide_improves_bc(task, small=small) for task in GUIDED]),
    ),
    Claim(
        "coefficient-has-a-middle",
        "On FetchPick λ = 0.5 is better than 0 and than 10.",
        "Appendix C.2, Figure 6",
        "above",
        both(lambda small: [coefficient_test((0.5, 0.0), (0.5, 10.0), small=small)]),
    ),
    Claim(
        "coefficient-collapse",
        "With λ = 10 DBC falls below BC on FetchPick.",
        "Appendix C.2, Figure 6",
        "above",
        both(lambda small: [coefficient_test((0.0, 10.0), small=small)]),
    ),
    Claim(
        "expert-term",
        "Subtracting the expert's own cost improves DBC, except on AntReach.",
        "Appendix C.3, Table 6",
        "above",
        both(lambda small: [expert_term_test(task, small=small) for task in TASKS if task != "ant-reach"]),
    ),
    Claim(
        "losses",
        "Minimising one of L_BC and L_DM also lowers the other.",
        "Appendix D.1, Figure 7",
        "above",
        both(lambda small: [losses_test(*names, small=small) for names in (("DM", "L_BC"), ("BC", "L_DM"))]),
    ),
    Claim(
        "noise-does-not-help-the-model",
        "Noise of 0.01 on the actions does not change how well a diffusion model reconstructs Spiral's actions.",
        "Appendix E.1, Table 7",
        "within",
        both(lambda small: [reconstruction_test(small=small)]),
        note="In percent of the error without noise; the margin is 10 %.",
    ),
    Claim(
        "noise-helps-guidance",
        "A diffusion model of actions with noise 0.01 guides better than one of clean actions.",
        "Appendix E.2",
        "above",
        both(lambda small: [spiral_test("DM-0.01", "DM", small=small)]),
    ),
    Claim(
        "bc-above-noise",
        "BC is better than a policy that learns from such a diffusion model alone.",
        "Appendix E.2",
        "above",
        both(lambda small: [spiral_test("BC", "DM-0.01", small=small)]),
    ),
    Claim(
        "every-size",
        "DBC is better than BC and Implicit BC at every size of the demonstrations.",
        "Appendix F, Table 8",
        "above",
        both(lambda small: [every_size(other, small=small) for other in ("bc", "ibc")]),
    ),
    Claim(
        "every-size-diffusion-policy",
        "DBC is at least level with Diffusion Policy at every size of the demonstrations.",
        "Appendix F, Table 8",
        "level",
        both(lambda small: [every_size("diffusion-policy", small=small)]),
    ),
    Claim(
        "augmentation",
        "Generated pairs change the success of BC by less than its standard deviation.",
        "Appendix F",
        "within",
        both(lambda small: [augmentation_test(small=small)]),
        note="The margin is the standard deviation that the paper prints, 3.6 points.",
    ),
    Claim(
        "pixels",
        "DBC is better than BC with image observations.",
        "Appendix B",
        "above",
        (on_schedule("CarRacing", "car-racing", minus(*PIXELS)),),
    ),
)
