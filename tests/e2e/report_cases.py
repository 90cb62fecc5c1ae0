#!/usr/bin/env python3
"""What a run says and writes while it trains: lines, metrics, per-rank times, summary, traces."""
import json
import re

import runner
from runner import DONE, Case, wait_for

# A model of 1,210 parameters on 8x8 pictures: a step is well below a millisecond.
SMALL = ["--model", "mlp", "--hidden", "16", "--seed", "1", "--threads", "1"]


class Reports(Case):
    """What a run says and writes while it trains."""

    def train(self, ranks, *options, out="run", data="synthetic:240x8x8x1x4", check=DONE):
        return self.mpirun(ranks, "train", *SMALL, "--data", data, "--batch", 24, "--out", out, *options, check=check)

    def test_G01_line_count_does_not_depend_on_ranks(self):
        counts = {n: len(self.train(n, "--epochs", 2, "--log-every", "0s", out=f"n{n}").text.splitlines())
                  for n in (1, 2, 4)}
        self.assertEqual(len(set(counts.values())), 1, counts)
        self.assertGreater(counts[1], 20)  # a line a step, and the banner

    def test_G01_all_ranks_on_request(self):
        quiet = self.train(3, "--epochs", 1)
        loud = self.train(3, "--epochs", 1, "--all-ranks-log", out="loud")
        for rank in (1, 2):
            self.assertEqual((len(quiet.lines(f"rank {rank} on ")), len(loud.lines(f"rank {rank} on "))), (0, 1))

    def test_G03_plain_lines_in_files(self):
        result = self.train(2, "--epochs", 2, "--log-every", "0s", "--keep-best", "loss", "--trace", "2:4")
        for text in (result.out, result.err, *(path.read_text() for path in (self.folder / "run").glob("*.*"))):
            self.assertNotIn("\r", text)
            self.assertNotIn("\x1b", text)
        self.assertEqual(len(re.findall(r"^epoch .* step \d+/20 .*loss", result.out, re.MULTILINE)), 20, result)

    def test_C09_banner_tells_batch_and_rate(self):
        result = self.train(3, "--steps", 1, "--warmup-epochs", "2", "--lr-scale", "linear", "--lr-base-batch", "12")
        self.assertRegex(result.out, r"batch +global 24, per rank 8 each")
        self.assertRegex(result.out, r"rate +base 0\.05, scaling linear.*in use 0\.1.*warm-up over 2 epochs")

    def test_G05_lines_survive_a_kill(self):
        # The folder is new each time, so what is found was written by this job.
        job = self.start(2, "train", *SMALL, "--lr", "0.001", "--data", "synthetic:240x8x8x1x4", "--batch", 24, "--out",
                         "run", "--epochs", 1000000, "--eval-every", 0, "--log-every", "0.1s",
                         "--checkpoint-every", 100000)
        progress = re.compile(r"^epoch .*\n", re.MULTILINE)
        wait_for(lambda: len(progress.findall(job.output()[0])) >= 3, "three progress lines", job=job)
        metrics = self.folder / "run/metrics.jsonl"
        wait_for(lambda: metrics.read_bytes().count(b"\n") > 1, "lines of metrics", job=job)
        seen = progress.findall(job.output()[0])
        lines = metrics.read_bytes()
        job.kill_all()
        self.assertEqual(progress.findall(job.output()[0])[:len(seen)], seen)
        self.assertTrue(metrics.read_bytes().startswith(lines))
        parsed = [json.loads(line) for line in metrics.read_bytes().split(b"\n")[:-1]]
        self.assertEqual([line["step"] for line in parsed], list(range(1, len(parsed) + 1)))

    def test_G07_one_schema_for_all_lines(self):
        self.train(2, "--steps", 10, "--eval-every", 0)
        self.train(2, "--steps", 20, "--resume", "latest", "--eval-every", "5steps")
        metrics = self.metrics()
        self.assertEqual([line["step"] for line in metrics], list(range(1, 21)))
        self.assertEqual(len({tuple(line) for line in metrics}), 1)
        self.assertEqual([line["step"] for line in metrics if line["eval_samples"]], [15, 20])
        self.assertEqual([line["eval_loss"] for line in metrics[:10]], [None] * 10)

    def test_rank_times_add_up(self):
        self.train(3, "--epochs", 3, "--ranks-every", 4)
        times = self.rank_times()
        intervals = sorted({(line["first_step"], line["last_step"]) for line in times})
        self.assertEqual([intervals[0][0], intervals[-1][1]], [1, 30])
        self.assertTrue(all(a[1] + 1 == b[0] for a, b in zip(intervals, intervals[1:])), intervals)
        for interval in intervals:
            self.assertEqual(sorted(line["rank"] for line in times if (line["first_step"], line["last_step"]) == interval),
                             [0, 1, 2])
        self.assertEqual(sum(line["samples"] for line in times), 3 * 240)
        self.assertTrue(all(line["compute_seconds"] >= 0 for line in times))
        self.assertTrue(all(sum(line["compute_seconds"] for line in times if line["rank"] == rank) > 0 for rank in range(3)))

    def test_summary(self):
        self.train(2, "--epochs", 2)
        summary, metrics = self.summary(), self.metrics()
        self.assertEqual((summary["status"], summary["ranks"], summary["step"], summary["samples_seen"]),
                         ("done", 2, 20, 480))
        self.assertEqual(summary["train_loss"], metrics[-1]["loss"])
        self.assertEqual(summary["test_accuracy"], metrics[-1]["eval_accuracy"])
        self.assertEqual((self.folder / summary["checkpoint"]).resolve(), self.checkpoints()[-1].resolve())

    def test_C03_config_of_a_run_reads_back(self):
        self.train(2, "--epochs", 2, "--momentum", "0.7")
        self.mpirun(2, "train", "--config", "run/config.ini", "--out", "again", check=DONE)
        self.assertEqual([line["loss"] for line in self.metrics("again")], [line["loss"] for line in self.metrics()])


class Traces(Case):
    """G09, G11: the trace file."""

    def test_G09_G11_window_and_rows(self):
        result = self.mpirun(3, "train", *SMALL, "--data", "synthetic:640x8x8x1x4", "--batch", 32, "--epochs", 2,
                             "--checkpoint-every", 4, "--trace", "6:10", "--out", "run", check=DONE)
        trace = self.trace()
        told = [line for line in result.out.splitlines() if line.startswith("trace")]
        self.assertEqual(len(told), 1, result)
        self.assertRegex(told[0], r"steps 6 to 9\b")
        meta = trace["metadata"]
        self.assertEqual((meta["first_step"], meta["last_step"], meta["last_complete_step"], meta["dropped"]), (6, 9, 9, 0))
        events = trace["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        self.assertEqual({event["pid"] for event in spans}, {0, 1, 2})
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual(sorted(names), [0, 1, 2])
        self.assertTrue(all(name.startswith(f"rank {rank} (") for rank, name in names.items()), names)
        self.assertEqual({event["args"]["step"] for event in spans}, {6, 7, 8, 9})
        rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
        for rank in range(3):
            for step in range(6, 10):
                present = {rows[rank, event["tid"]] for event in spans
                           if event["pid"] == rank and event["args"]["step"] == step}
                self.assertLessEqual({"compute", "update", "communication", "input"}, present, (rank, step))
        self.assertIn("saving", {rows[0, event["tid"]] for event in spans if event["pid"] == 0})
        self.assertTrue(all(event["ts"] >= 0 and event["dur"] >= 0 for event in spans))
        # One clock: a bucket's exchange cannot end on one rank before it began on every other, up to the error of
        # the clocks' comparison (on one machine all read the same clock; the offsets are what is tested).
        for step in range(6, 10):
            exchange = [event for event in spans if event["args"]["step"] == step and event["name"] == "all-reduce bucket 0"]
            self.assertEqual(len(exchange), 3)
            self.assertLess(max(event["ts"] for event in exchange),
                            min(event["ts"] + event["dur"] for event in exchange) + 2000)

    def test_G09_a_large_window_stays_within_the_limit(self):
        self.mpirun(2, "train", *SMALL, "--data", "synthetic:64x8x8x1x4", "--batch", 4, "--steps", 3000, "--eval-every", 0,
                    "--checkpoint-every", 10000, "--trace", "1:100000", "--out", "run", check=DONE)
        self.assertLess((self.folder / "run/trace.json").stat().st_size, 64e6)
        meta = self.trace()["metadata"]
        self.assertEqual(meta["first_step"], 1)
        self.assertLessEqual(meta["last_complete_step"], 3000)
        self.assertGreater(meta["last_complete_step"], 0)

    def test_no_trace_unless_asked(self):
        self.mpirun(1, "train", *SMALL, "--data", "synthetic:64x8x8x1x4", "--steps", 3, "--out", "run", check=DONE)
        self.assertFalse((self.folder / "run/trace.json").exists())


if __name__ == "__main__":
    runner.main()
