package tier

// Points are the places between two steps at which Options.Hook is called, in the order in which they are passed.
var Points = []string{}
