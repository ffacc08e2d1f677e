"""Everything people see, and the only door to rich. Law: foreign text is filtered and never read as markup."""
