package main

import "context"

func noBench(context.Context, benchOptions) error { return usage("this build measures nothing yet") }
