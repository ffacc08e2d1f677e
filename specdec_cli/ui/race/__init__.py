"""How a race looks: on a terminal, in a pipe, as a picture and as a page."""
