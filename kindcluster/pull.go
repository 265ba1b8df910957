package kindcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Pull has the engine get a node image that somebody else keeps, unless it has it, and returns what the engine calls it. What an engine of the
// lab cannot reach from its network namespace is fetched by this process, with the user's credentials for docker.
func (b *Images) Pull(ctx context.Context, image string) (local string, err error) {
	if _, err := b.Engine.Run(ctx, "image", "inspect", image); err == nil {
		return image, nil
	}
	err = b.timed("pull of "+image, func() error {
		if b.Engine.host != "" {
			local, err = b.fetch(ctx, image)
			return err
		}
		local = image
		_, err := b.Engine.Run(ctx, "pull", "--quiet", image)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("node image %s: %w; without a registry, leave --node-image out: the lab builds one", image, err)
	}
	return local, nil
}

// fetch gives the engine an image from a registry, under a name of the lab: an archive of images keeps no digest.
func (b *Images) fetch(ctx context.Context, image string) (local string, err error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return "", err
	}
	remoteImage, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return "", err
	}
	id, err := remoteImage.Digest()
	if err != nil {
		return "", err
	}
	local = Prefix + "/pulled:" + id.Hex[:12]
	if _, err := b.Engine.Run(ctx, "image", "inspect", local); err == nil {
		return local, nil
	}
	tag, err := name.NewTag(local)
	if err != nil {
		return "", err
	}
	archive, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := tarball.Write(tag, remoteImage, w)
		w.CloseWithError(err)
		written <- err
	}()
	_, err = b.Engine.feed(ctx, archive, "load", "--quiet")
	archive.Close() // the writer ends also if docker did before
	return local, errors.Join(err, <-written)
}
