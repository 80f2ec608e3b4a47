"""The web page: views, pages, and who may see them."""
