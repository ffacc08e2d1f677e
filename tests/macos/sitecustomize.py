"""Python imports this at its start where the folder is on PYTHONPATH: in the tests and in every child of theirs."""

import stand_in

stand_in.begin()
