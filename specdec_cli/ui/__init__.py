"""Everything people see, and the only door to rich. Foreign text is filtered and never read as markup."""
