"""Detect over-fitting from losses on held-out episodes."""

from diffclone.training import Progress


class Overfitting:
    """Records the held-out loss of a training."""

    def __init__(self) -> None:
        self.name = ""
        self.losses: list[tuple[int, float]] = []

    def add(self, now: Progress) -> None:
        """Record the held-out loss of a report: L_BC if there is one."""
        self.name = next((name for name in ("held_out/L_BC", "held_out/loss") if name in now.losses), "")
        if self.name:
            self.losses.append((now.update, float(now.losses[self.name].mean())))

    def message(self) -> str | None:
        """Return one line if the loss ended well above its minimum, and the minimum was long before the end."""
        if not self.losses:
            return None
        (update, lowest), (last, final) = min(self.losses, key=lambda entry: entry[1]), self.losses[-1]
        if update > 0.8 * last or final < 1.05 * lowest:
            return None
        return (
            f"Over-fitting: {self.name} was lowest at update {update:,} ({lowest:.4f}) and ended at {final:.4f}. "
            f"More demonstrations or --training.updates {update} may be better; evaluate both, success is what counts."
        )
