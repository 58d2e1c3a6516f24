"""Every configuration of a model for a kind of request, judged and ranked."""
