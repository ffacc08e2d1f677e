"""Every architecture of the installed mlx-lm, tiny and random: does its output stay its own under speculation?"""
