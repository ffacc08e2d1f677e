"""Everything people see, and the only package that imports rich. Foreign text is filtered and never read as markup."""
