package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/s3"
)

// fleetStore returns the object store of the script's fleet.
func fleetStore(ts *testscript.TestScript) *s3.Objects {
	f, err := config.ReadFleetFile(ts.MkAbs("codefleet/fleet.json"))
	ts.Check(err)
	bucket, err := s3.Open(s3.Options{
		Endpoint: f.S3.Endpoint, Bucket: f.S3.Bucket, AccessKey: f.S3.AccessKey, SecretKey: f.S3.SecretKey,
	})
	ts.Check(err)
	return bucket
}

// later N makes N commits to the workspace main, and then collects garbage with the shortest retention. With a second
// argument, it first sets the end of all retention times to the past.
func later(ts *testscript.TestScript, _ bool, args []string) {
	bucket := fleetStore(ts)
	store, ctx := state.New(bucket, state.Options{}), context.Background()
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	ref := state.Ref{Tenant: config.DefaultTenant, Workspace: "main"}
	for i := range n {
		_, err := store.Edit(ctx, ref, state.EditOptions{Base: state.Newest}, func(yield func(state.Edit, error) bool) {
			yield(state.Edit{Path: "later", Kind: state.File, Content: strings.NewReader(fmt.Sprint(args, i))}, nil)
		})
		ts.Check(err)
	}
	if len(args) > 1 {
		expire(ts, bucket, ref)
	}
	for range 3 {
		_, err := maintenance.CollectGarbage(ctx, store.Repo(), ref.Tenant,
			maintenance.GCOptions{Retention: maintenance.Retention{Newest: 1, All: 1, Daily: -1}, Grace: 1})
		ts.Check(err)
	}
}

// expire changes the time until which versions of a workspace are retained to a time in 1970.
func expire(ts *testscript.TestScript, bucket objects.Objects, ref state.Ref) {
	ctx := context.Background()
	for info, err := range bucket.List(ctx, ref.Tenant+"/w/"+ref.Workspace+"/k/", "") {
		ts.Check(err)
		obj, err := bucket.Get(ctx, info.Key, objects.GetOptions{})
		ts.Check(err)
		ts.Check(bucket.Put(ctx, info.Key[:strings.LastIndexByte(info.Key, '-')]+"-1", obj.Data, objects.Sum(obj.Data)))
		ts.Check(bucket.Delete(ctx, info.Key))
	}
}

// download PATH requests a path from the fleet's HTTP interface. It prints the response's status, content type and
// length, and its body in hexadecimal.
func download(ts *testscript.TestScript, _ bool, args []string) {
	f, err := client.ReadFleetFile(ts.MkAbs("codefleet/fleet.json"))
	ts.Check(err)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, f.URL+args[0], nil)
	ts.Check(err)
	req.Header.Set("Authorization", "Bearer "+f.Token)
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	_, err = fmt.Fprintf(ts.Stdout(), "%d %s %d\n%x\n", resp.StatusCode, resp.Header.Get("Content-Type"), len(body),
		body)
	ts.Check(err)
}
