"""Learning to schedule: training streams, the tuned opponent, environment and trainers."""
