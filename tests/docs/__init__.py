"""The pages of the documentation: their blocks of code run, and do what the pages promise."""
