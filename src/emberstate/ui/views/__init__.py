"""What each page shows, as plain data: no HTML. The same data is the page's JSON."""
