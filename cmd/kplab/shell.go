package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"kplab/lab"
)

// nodeShell runs an interactive shell in the env's first node, on the controlling terminal.
func nodeShell(ctx context.Context, env lab.Env) error {
	node := env.Nodes()[0]
	starter, ok := node.(interface {
		Command(ctx context.Context, argv ...string) *exec.Cmd
		Start(cmd *exec.Cmd) error
	})
	if !ok {
		return fmt.Errorf("%s cannot start a shell", node.Name())
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer tty.Close()
	fmt.Fprintf(tty, "\nshell in %s; kube-proxy runs as the script left it. exit or Ctrl-D ends everything.\n", node.Name())

	cmd := starter.Command(ctx, "bash", "--norc", "-i")
	cmd.Env = append(cmd.Env, "PS1="+node.Name()+"# ", "TERM="+os.Getenv("TERM"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	if err := starter.Start(cmd); err != nil {
		return err
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil // the status of the last command typed says nothing
	}
	return err
}
