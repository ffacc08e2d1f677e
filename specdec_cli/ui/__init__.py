"""What people see, and the only door to rich. Law: foreign text never reaches a terminal unfiltered or as markup."""
