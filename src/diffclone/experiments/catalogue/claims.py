"""The claims of the paper that experiments can test, in its order.

Margins were fixed before the results of the tests were known: 2 points of success and 2 % of the expert's return, or as
the claim says.
"""

from diffclone.experiments.catalogue.claim_tests import (
    BRIEF,
    COEFFICIENT,
    FAR,
    GENERATED,
    GUIDED,
    NOISY,
    OTHERS,
    OWN_BC,
    PIXELS,
    RATIOS,
    SETTINGS,
    SMALL,
    SPIRAL,
    change,
    compare_times,
    error_cell,
    every_level,
    every_size,
    expert_term_test,
    guides_test,
    ibc_test,
    loss_cell,
    minus,
    on_brief,
    on_recipe,
    on_study,
)
from diffclone.experiments.catalogue.scores import GUIDE_MODELS, TASKS
from diffclone.experiments.claims import Claim, ClaimTest, MeasuredRatio

SMALL_STUDY = "In the small study a try has 24 episodes, and Diffusion Policy has at most 8,000 updates."
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
        (
            *(on_study(t, "DBC (paper)", "Diffusion Policy") for t in ("fetch-pick", "cheetah", "walker", "ant-reach")),
            *(on_study(t, "DBC (paper)", "Diffusion Policy", small=True) for t in ("fetch-pick", "ant-reach")),
        ),
        note=SMALL_STUDY,
    ),
    Claim(
        "ibc-last",
        "Implicit BC is worse than every other method.",
        "Section 5.4, Table 2",
        "above",
        (*(ibc_test(task) for task in SETTINGS), *(ibc_test(task, small=True) for task in SMALL)),
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
        tuple(every_level(other) for other in OTHERS),
        note="On this schedule BC is trained past its peak.",
    ),
    Claim(
        "loses-least",
        "DBC loses less success than the others as the regions grow from 1 to 2.",
        "Section 5.5, Table 3",
        "above",
        tuple(
            on_brief(
                "FetchPick, noise 1 to 2",
                "fetch-pick",
                change(FAR["dbc"][1.0], FAR["dbc"][2.0], FAR[other][1.0], FAR[other][2.0]),
            )
            for other in OTHERS
        ),
        note="In points of success; the paper gives percent of the success at 1.",
    ),
    Claim(
        "guide-alone-fails",
        "On Spiral a policy that learns from the diffusion model alone fails; with BC it succeeds.",
        "Section 5.6, Figure 4",
        "above",
        tuple(on_brief("Spiral", "spiral", minus(SPIRAL[name], SPIRAL["DM"])) for name in ("BC", "DBC")),
    ),
    Claim(
        "best-guide",
        "Together with BC, the diffusion model is a better guide than energy model, VAE and GAN.",
        "Appendix C.1, Tables 4 and 5",
        "above",
        tuple(guides_test(task, "with") for task in ("maze", "fetch-pick")),
        note="The GAN has the paper's schedule.",
    ),
    Claim(
        "best-guide-alone",
        "Without BC, the diffusion model is the best guide.",
        "Appendix C.1, Tables 4 and 5",
        "above",
        tuple(guides_test(task, "without") for task in ("maze", "fetch-pick")),
        note="In the paper's own table for FetchPick the GAN is above it.",
    ),
    Claim(
        "bc-improves-guides",
        "Adding the BC loss improves every guide.",
        "Appendix C.1, Tables 4 and 5",
        "above",
        tuple(
            on_brief(
                TASKS[task],
                task,
                *(minus(GUIDED[task, guide, "with"], GUIDED[task, guide, "without"]) for guide in GUIDE_MODELS),
            )
            for task in ("maze", "fetch-pick")
        ),
    ),
    Claim(
        "guides-improve-bc",
        "The diffusion model improves BC with the same network and schedule.",
        "Appendix C.1, Tables 4 and 5",
        "above",
        tuple(
            on_brief(TASKS[task], task, minus(GUIDED[task, "diffusion", "with"], OWN_BC[task, "diffusion"]))
            for task in ("maze", "fetch-pick")
        ),
    ),
    Claim(
        "coefficient-has-a-middle",
        "On FetchPick λ = 0.5 is better than 0 and than 10.",
        "Appendix C.2, Figure 6",
        "above",
        (
            on_brief(
                "FetchPick",
                "fetch-pick",
                minus(COEFFICIENT[0.5], COEFFICIENT[0.0]),
                minus(COEFFICIENT[0.5], COEFFICIENT[10.0]),
            ),
        ),
    ),
    Claim(
        "coefficient-collapse",
        "With λ = 10 DBC falls below BC on FetchPick.",
        "Appendix C.2, Figure 6",
        "above",
        (on_brief("FetchPick", "fetch-pick", minus(COEFFICIENT[0.0], COEFFICIENT[10.0])),),
    ),
    Claim(
        "expert-term",
        "Subtracting the expert's own cost improves DBC, except on AntReach.",
        "Appendix C.3, Table 6",
        "above",
        tuple(expert_term_test(task) for task in TASKS if task != "ant-reach"),
    ),
    Claim(
        "losses",
        "Minimising one of L_BC and L_DM also lowers the other.",
        "Appendix D.1, Figure 7",
        "above",
        tuple(
            ClaimTest(f"Maze, {BRIEF}", (((1.0, loss_cell(label, loss)),),), "maze", "percent")
            for label, loss in (("DM", "L_BC"), ("BC", "L_DM"))
        ),
    ),
    Claim(
        "noise-does-not-help-the-model",
        "Noise of 0.01 on the actions does not change how well a diffusion model reconstructs Spiral's actions.",
        "Appendix E.1, Table 7",
        "within",
        (ClaimTest(f"Spiral, {BRIEF}", (minus(error_cell(0.01), error_cell(0.0)),), "spiral", "percent", margin=10.0),),
        note="In percent of the error without noise; the margin is 10 %.",
    ),
    Claim(
        "noise-helps-guidance",
        "A diffusion model of actions with noise 0.01 guides better than one of clean actions.",
        "Appendix E.2",
        "above",
        (on_brief("Spiral", "spiral", minus(NOISY, SPIRAL["DM"])),),
    ),
    Claim(
        "bc-above-noise",
        "BC is better than a policy that learns from such a diffusion model alone.",
        "Appendix E.2",
        "above",
        (on_brief("Spiral", "spiral", minus(SPIRAL["BC"], NOISY)),),
    ),
    Claim(
        "every-size",
        "DBC is better than BC and Implicit BC at every size of the demonstrations.",
        "Appendix F, Table 8",
        "above",
        tuple(every_size(other) for other in ("bc", "ibc")),
    ),
    Claim(
        "every-size-diffusion-policy",
        "DBC is at least level with Diffusion Policy at every size of the demonstrations.",
        "Appendix F, Table 8",
        "level",
        (every_size("diffusion-policy"),),
    ),
    Claim(
        "augmentation",
        "Generated pairs change the success of BC by less than its standard deviation.",
        "Appendix F",
        "within",
        (ClaimTest("Maze, preset best", (minus(GENERATED[0], GENERATED[1]),), "maze", margin=3.6),),
        note="The margin is the standard deviation that the paper prints, 3.6 points.",
    ),
    Claim(
        "pixels",
        "DBC is better than BC with image observations.",
        "Appendix B",
        "above",
        (on_brief("CarRacing", "car-racing", minus(PIXELS[0], PIXELS[1])),),
    ),
)
