"""The long-running process: wiring, order of start, signals. Decisions are the engine's."""
