"""The live panel."""
