"""A request to a model and its answer, each read, judged and written anew."""
