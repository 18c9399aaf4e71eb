package up

import (
	"context"
	"path/filepath"
	"time"

	"github.com/codefleet/codefleet/internal/embedded"
)

const (
	firstRestart = 100 * time.Millisecond // pause before the object store is started again; doubles with each failure
	maxRestart   = 5 * time.Second
	stopS3Time   = 100 * time.Millisecond // for the object store to stop once worker.drain has passed
	steadyS3     = time.Minute            // after a process has run for this long, the pause is firstRestart again
)

// startS3 starts the object store's process.
func (f *Fleet) startS3(ctx context.Context, addr string) (*embedded.S3, error) {
	c := f.o.Config
	return embedded.StartS3(ctx, embedded.S3Options{
		Dir: filepath.Join(c.Data, "s3"), Addr: addr, Bucket: c.S3.Bucket, Log: f.o.Telemetry.Logger,
		AccessKey: f.File.S3.AccessKey, SecretKey: f.File.S3.SecretKey,
	})
}

// keepS3 starts the object store's process again, at the same address, whenever it exits before life ends. Until then,
// clients retry their requests.
func (f *Fleet) keepS3(life context.Context) error {
	log, pause, started := f.o.Telemetry.Logger, firstRestart, time.Now()
	for {
		select {
		case <-f.s3.Load().Exited():
		case <-life.Done():
			return nil
		}
		if time.Since(started) > steadyS3 {
			pause = firstRestart
		}
		log.WarnContext(life, "object store exited", "pause", pause)
		for {
			select {
			case <-time.After(pause):
			case <-life.Done():
				return nil
			}
			pause = min(2*pause, maxRestart)
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
