"""What the page of `diffclone calibrate` shows, computed from the monitor and its calibration episodes."""

import numpy as np

from diffclone.data import Demonstrations
from diffclone.deploy.monitor import Monitor, split_episodes
from diffclone.reports.monitor import MonitorPage, PartScores, monitor_page


def make_monitor_page(run: str, monitor: Monitor, episodes: Demonstrations) -> str:
    """Render the page of a calibrated monitor."""
    q, found = monitor.checked_calibration, monitor.score_episodes(episodes)
    assert found.alarm is not None, "a calibrated monitor has thresholds"
    parts: list[PartScores] = []
    for name in monitor.parts:
        limit = q.thresholds[name]
        limits = np.array(limit.centre) + limit.q * np.array(limit.width) if limit.centre else np.array([limit.q])
        alarms = [bool(steps.any()) for steps in np.split(found.alarm.values[name], episodes.episode_ends[:-1])]
        scores = list(split_episodes(found.values[name], episodes))
        parts.append(PartScores(name, scores, limits, q.single[name], sum(alarms)))
    return monitor_page(
        MonitorPage(
            run=run,
            score=" and ".join(fitted.name for fitted in monitor.scores),
            threshold=q.kind,
            window=q.window,
            alpha=q.alpha,
            false_alarms=q.false_alarms,
            description=q.describe(),
            parts=parts,
            calibration=q.to_dict(),
        )
    )
