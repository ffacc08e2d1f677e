"""`specdec doctor --report`: what this machine does with a pair, in one file to send."""
