"""HTTP around the desk: the protocols that editors, agents and scripts already speak."""
