"""The page's server (extra `web`): files of the page, and answers as lines of JSON."""
