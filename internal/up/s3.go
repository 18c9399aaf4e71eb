package up

import (
	"context"
	"path/filepath"
	"time"

	"github.com/codefleet/codefleet/internal/embedded"
)

const (
	firstRestartDelay = 100 * time.Millisecond // delay before the object store starts again; doubled after each failure
	maxRestartDelay   = 5 * time.Second
	stopS3Time        = 100 * time.Millisecond // for the object store to stop once worker.drain has passed
	steadyS3          = time.Minute            // a process that ran for this long resets the delay
)

// startS3 starts the object store's process.
func (f *Fleet) startS3(ctx context.Context, addr string) (*embedded.S3, error) {
	c := f.o.Config
	return embedded.StartS3(ctx, embedded.S3Options{
		Dir: filepath.Join(c.Data, "s3"), Addr: addr, Bucket: c.S3.Bucket, Log: f.o.Telemetry.Logger,
		AccessKey: f.File.S3.AccessKey, SecretKey: f.File.S3.SecretKey,
	})
}

// restartS3 starts the object store's process again, at the same address, whenever it exits before life ends.
// Meanwhile, clients retry their requests.
func (f *Fleet) restartS3(life context.Context) error {
	log, delay, started := f.o.Telemetry.Logger, firstRestartDelay, time.Now()
	for {
		select {
		case <-f.s3.Load().Exited():
		case <-life.Done():
			return nil
		}
		if time.Since(started) > steadyS3 {
			delay = firstRestartDelay
		}
		log.WarnContext(life, "object store exited", "delay", delay)
		for {
			select {
			case <-time.After(delay):
			case <-life.Done():
				return nil
			}
			delay = min(2*delay, maxRestartDelay)
			s3, err := f.startS3(life, f.s3.Load().Endpoint())
			if err == nil {
				f.s3.Store(s3)
				started = time.Now()
				log.InfoContext(life, "object store restarted")
				break
			}
			log.WarnContext(life, "object store not restarted", "error", err)
		}
	}
}

// closeS3 stops the object store's process, if it was started.
func (f *Fleet) closeS3() {
	if s3 := f.s3.Load(); s3 != nil {
		_ = s3.Close() // the exit status after a signal has no meaning
	}
}
