"""Dynamic resource allocation: devices that drivers offer, claims that pods name, who gets which."""
