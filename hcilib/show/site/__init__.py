"""How is it read offline? Scenarios are executed by papermill and become pages by nbconvert and four templates."""
