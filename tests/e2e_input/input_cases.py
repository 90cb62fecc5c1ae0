#!/usr/bin/env python3
"""Wrong command lines, config files, data, checkpoints and output places."""
import gzip
import re
import shutil
import unittest

import h5py
import numpy as np

import refusal
import runner
from refusal import SMALL, TINY, RefusalCase
from runner import CHECKPOINT, DATA, DEVICE, DONE, SETTINGS, idx_bytes, random_samples, read_attributes


class CommandLine(RefusalCase):
    """C01, C05 and kin: options."""

    def test_C01_names_are_exact_and_told_once(self):
        for wrong, near in (("--check", "--checkpoint-every"), ("--epoch", "--epochs"), ("--learning-rate", None),
                            ("--ouput", "--out"), ("--batch-size", None), ("--resum", "--resume")):
            message = self.refused(3, self.train(wrong, "3"), SETTINGS, f"{wrong}: unknown option of train")
            if near:
                self.assertIn(f"did you mean {near}?", message)
        self.assert_absent("run")

    def test_values_of_the_wrong_form_or_range(self):
        for option, values, expected in (
                ("--batch", ("0", "-3", "1e3", "abc", "", "16777217", "12.5", "0x10", " 8", "99999999999999999999"),
                 "an integer from 1 to"),
                ("--lr", ("0", "-1", "nan", "inf", "fast", "1e400", ""), "a number above 0"),
                ("--momentum", ("1.5", "-0.1"), "a number from 0 to 1"),
                ("--epochs", ("-1", "two"), "an integer from 0"),
                ("--hidden", ("0", "16,", ",", "16;16", "16,-1", ""), "integers from 1"),
                ("--model", ("lenett", "", "LENET"), "one of"),
                ("--overlap", ("on", "ful"), "one of off, backward, full"),
                ("--optimizer", ("adam",), "one of sgd, adamw"),
                ("--policy", ("bps",), "one of bsp"),
                ("--device", ("gpu",), "one of auto, cpu, cuda"),
                ("--shuffle", ("maybe",), "on or off"),
                ("--trace", ("5", "5:", ":5", "9:3", "3:3", "-1:4", "a:b", "1:2:3", "1.5:3"), "a window of steps A:B"),
                ("--max-time", ("5", "soon", "-3s", "1:30", "00:61:00", "", "s", "1e999h"), "a time such as 90s"),
                ("--log-every", ("10", "x"), "a time such as 90s"),
                ("--eval-every", ("-1", "steps", "2.5", "every"), "a number of epochs (2) or of steps"),
                ("--bucket-mb", ("0", "-1", "4097"), "a number above 0"),
                ("--threads", ("-1", "many"), "an integer from 0"),
                ("--seed", ("-2", "x"), "an integer from -1"),
                ("--out", ("",), "a text that is not empty")):
            for value in values:
                self.refused_alone(self.train() + [f"{option}={value}"] if option != "--out" else
                                   ["train", *SMALL, *TINY, "--out="], SETTINGS, f"{option}: expected {expected}",
                                   f'found "{value}"') if option not in ("--batch", "--hidden", "--model", "--seed",
                                                                        "--threads") else \
                    self.refused_alone(["train", "--out", "run", f"{option}={value}"], SETTINGS,
                                       f"{option}: expected {expected}", f'found "{value}"')
        self.assert_absent("run")
