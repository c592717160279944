"""The only room that knows file formats: files in, tables out."""
