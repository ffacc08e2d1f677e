"""What is measured of a pair: its prompts, plain decoding beside drafted, and where two texts part."""
