package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// completeTimeout is how long a shell may wait for a completion.
const completeTimeout = 2 * time.Second

// completeTopics offers the cluster's topics to the shell.
func (a *app) completeTopics(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, admin *kadm.Client) ([]string, error) {
		topics, err := admin.ListTopics(ctx)
		return topics.Names(), err
	})
}

// completeGroups offers the cluster's groups to the shell.
func (a *app) completeGroups(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, admin *kadm.Client) ([]string, error) {
		groups, err := admin.ListGroups(ctx)
		return groups.Groups(), err
	})
}

func (a *app) complete(cmd *cobra.Command, list func(context.Context, *kadm.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	a.timeout = completeTimeout
	var names []string
	err := a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
		var err error
		names, err = list(ctx, admin)
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
