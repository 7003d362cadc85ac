"""One file for each kind of job: how the daemon runs an estimator on a snapshot."""
