"""The pairs, and the models of each: listed, judged, downloaded, removed."""
