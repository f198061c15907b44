"""Notices over-fitting from losses on episodes that nothing learns from."""

from diffclone.training import Progress


class Overfitting:
    """Watches the held-out loss, and says when it was lowest long before the end."""

    def __init__(self) -> None:
        self.name = ""
        self.seen: list[tuple[int, float]] = []

    def see(self, now: Progress) -> None:
        """Remember what a report says: of L_BC where there is one."""
        self.name = next((name for name in ("held_out/L_BC", "held_out/loss") if name in now.losses), "")
        if self.name:
            self.seen.append((now.update, float(now.losses[self.name].mean())))

    def notice(self) -> str | None:
        """One line, if the loss at the end is well above its lowest."""
        if not self.seen:
            return None
        (update, lowest), (last, final) = min(self.seen, key=lambda entry: entry[1]), self.seen[-1]
        if update > 0.8 * last or final < 1.05 * lowest:
            return None
        return (
            f"Over-fitting: {self.name} was lowest at update {update:,} ({lowest:.4f}) and ended at {final:.4f}. "
            f"More demonstrations or --training.updates {update} may be better; evaluate both, success is what counts."
        )
