"""What a node fetches by itself: the hub's files, through its site's proxies and authorities."""
