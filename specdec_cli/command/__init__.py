"""What commands share: the table of options, their values, the config as defaults, helps."""
