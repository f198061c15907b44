"""The shapes that tensors have here, by name.

Every tensor in a model is `(*members, batch, feature)`; a loss reduces the last two axes; what leads is members.
With jaxtyping installed (as in the tests) the annotations are enforced; without it they are plain tensors.
"""

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

if TYPE_CHECKING:
    Obs: TypeAlias = Tensor
    Act: TypeAlias = Tensor
    Rows: TypeAlias = Tensor
    Steps: TypeAlias = Tensor
    Costs: TypeAlias = Tensor
    Scalars: TypeAlias = Tensor
    Seen: TypeAlias = npt.NDArray[np.float32 | np.uint8]
    """Observations of the world: numbers, or the bytes of pictures."""
else:
    Seen = npt.NDArray[np.float32] | npt.NDArray[np.uint8]
    try:
        from jaxtyping import Float, Int
    except ImportError:
        Obs = Act = Rows = Steps = Costs = Scalars = Tensor
    else:
        Obs = Float[Tensor, "*members batch obs"]
        Act = Float[Tensor, "*members batch act"]
        Rows = Float[Tensor, "*_members rows feature"]
        Steps = Int[Tensor, "*_members rows"]
        Costs = Float[Tensor, "*members batch"]
        Scalars = Float[Tensor, "*members"]

Scalar: TypeAlias = float | Tensor
"""A setting in which the members of one stack may differ: a number to users, one number a member while training."""

Coefficient: TypeAlias = Scalar | Literal["auto"]
"""Such a setting, or one that sets itself."""

Floats: TypeAlias = npt.NDArray[np.float32]
