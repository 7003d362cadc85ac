"""What the daemon shows of itself: logs, metrics, health, the status page."""
