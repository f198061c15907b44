"""Names for the shapes of tensors.

Every tensor in a model is `(*members, batch, feature)`. A loss reduces the last two axes; the leading axes are members.
If jaxtyping is installed, as in the tests, the annotations are checked; otherwise they are plain tensors.
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
    """Raw observations: numbers, or the bytes of images."""
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
"""A setting in which members may differ: a number for users, a tensor with one number per member while training."""


def lowest(value: Scalar) -> float:
    """Return the lowest of the members' numbers."""
    return float(value.min()) if isinstance(value, Tensor) else value


def is_off(value: Scalar) -> bool:
    """Return whether the setting is 0 for all members. One in which members may differ counts as used."""
    return not isinstance(value, Tensor) and value == 0


def per_row(value: Scalar) -> Scalar:
    """Return the setting in a form that multiplies (members, batch, feature)."""
    return value[:, None, None] if isinstance(value, Tensor) else value


Coefficient: TypeAlias = Scalar | Literal["auto"]
"""A `Scalar`, or "auto" for a value that is computed from the gradients."""

Floats: TypeAlias = npt.NDArray[np.float32]
