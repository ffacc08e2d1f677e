"""HTTP around the scheduler: the protocols that editors, agents and scripts already speak."""
