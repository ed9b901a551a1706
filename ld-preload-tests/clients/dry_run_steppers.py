"""Trainings whose optimizer steps are not one after another with nothing between.

usage: dry_run_steppers.py threads|evaluations
"""

import sys
import threading

import torch


def train(evaluates):
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        if evaluates:
            model.eval()
            with torch.no_grad():
                model(torch.randn(32, 256, device="cuda"))
            model.train()
        model(torch.randn(32, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if sys.argv[1] == "threads":
    threads = [threading.Thread(target=train, args=[False]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
else:
    train(True)
print("done")
