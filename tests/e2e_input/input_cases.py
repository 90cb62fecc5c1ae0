#!/usr/bin/env python3
"""Wrong command lines, config files, checkpoints and output places: each is refused before the first step."""
import hashlib
import shutil

import refusal
from refusal import SMALL, TINY, RefusalCase
from runner import CHECKPOINT, DATA, DEVICE, DONE, SETTINGS, read_attributes

# (option, wrong values, how the message tells what is right)
WRONG_VALUES = (
    ("--batch", ("0", "-3", "1e3", "abc", "", "16777217", "12.5", "0x10", " 8", "99999999999999999999"), "an integer from 1"),
    ("--lr", ("0", "-1", "nan", "inf", "fast", "1e400", "0,1", ""), "a number above 0"),
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
    ("--out", ("",), "a text that is not empty"),
    ("--data", ("",), "a text that is not empty"),
)


class CommandLine(RefusalCase):
    """C01, C05 and kin: options."""

    def test_C01_names_are_exact_and_the_error_is_told_once(self):
        for wrong, near in (("--check", "--checkpoint-every"), ("--epoch", "--epochs")):
            message = self.refused(3, self.train(wrong, "3"), SETTINGS, f"{wrong}: unknown option of train")
            self.assertIn(f"did you mean {near}?", message)
        self.assert_absent("run")

    def test_C01_hints(self):
        for wrong, near in (("--ouput", "--out"), ("--resum", "--resume"), ("--hiden", "--hidden"), ("--Batch", "--batch"),
                            ("--eval_every", "--eval-every"), ("--zzz", None)):
            message = self.refused_alone(["train", wrong, "3"], SETTINGS, f"{wrong}: unknown option of train", "--help")
            self.assertEqual("did you mean" in message, near is not None, message)
            self.assertIn(f"did you mean {near}?" if near else "", message)
        self.refused_alone(["train", "--bench-steps", "3"], SETTINGS, "--bench-steps is an option of bench, not of train")
        self.refused_alone(["train", "-n", "3"], SETTINGS, "-n: unknown option of train")
        self.refused_alone(["train", "lenet"], SETTINGS, 'argument "lenet"')
        self.refused_alone(["train", "--batch", "8", "--batch", "9"], SETTINGS, "--batch: expected once", '"8" and "9"')
        self.refused_alone(["train", "--batch"], SETTINGS, "--batch: expected an integer", "found no value")

    def test_values_of_the_wrong_form_or_range(self):
        for option, values, expected in WRONG_VALUES:
            for value in values:
                self.refused_alone(["train", f"{option}={value}"], SETTINGS, f"{option}: expected {expected}",
                                   f'found "{value}"' if value else "found no value")
        self.assert_absent("run")
        # On several ranks as on one.
        self.refused(2, self.train("--momentum", "abc"), SETTINGS, '--momentum: expected a number', 'found "abc"')
        self.assert_absent("run")

    def test_options_that_exclude_each_other(self):
        for options, words in ((["--epochs", "0"], ["--epochs", "--steps 0"]),
                               (["--resume", "latest", "--replace"], ["--resume", "--replace", "found both"]),
                               (["--resume", "latest", "--init-from", "x.h5"], ["--resume", "--init-from", "found both"]),
                               (["--nesterov", "--optimizer", "adamw"], ["--nesterov", "adamw"]),
                               (["--keep-best", "loss", "--eval-every", "0"], ["--keep-best", "--eval-every 0"]),
                               (["--schedule", "cosine", "--lr", "0.1", "--min-lr", "0.2"], ["--min-lr", "0.1", "0.2"])):
            self.refused_alone(self.train(*options), SETTINGS, *words)
        self.assert_absent("run")

    def test_commands(self):
        self.refused_alone(["trian"], SETTINGS, 'found "trian"', "did you mean train?")
        self.refused_alone(["Train"], SETTINGS, 'found "Train"')
        self.refused_alone([""], SETTINGS, "expected one of train, eval, inspect, bench")
        self.refused_alone(["--batch", "8", "train"], SETTINGS, "expected a command first", '"--batch"')
        self.refused(2, ["trian", "--out", "run"], SETTINGS, 'found "trian"')
        self.refused_alone(["eval"], SETTINGS, "eval: expected --checkpoint", "found none")
        self.refused_alone(["inspect"], SETTINGS, "inspect: expected FILE", "found none")
        self.refused_alone(["inspect", "a.h5", "b.h5"], SETTINGS, '"a.h5" and "b.h5"')
        # Nothing was asked for, so nothing was done; the help says what could be.
        result = self.alone(check=SETTINGS)
        self.assertRegex(result.err, r"^error: expected a command")
        self.assertIn("sidestep --help", result.err)
        for help_of in ((), ("train",), ("eval",), ("inspect",), ("bench",)):
            self.assertIn("--help" if not help_of else f"sidestep {help_of[0]}", self.alone(*help_of, "--help", check=DONE).out)

    def test_C05_a_gpu_that_is_not_there_is_told_before_data_is_read(self):
        versions = self.alone("--version", check=DONE).out
        env = {"CUDA_VISIBLE_DEVICES": ""}
        message = self.refused(2, self.train("--device", "cuda", data="hdf5:no-such-file.h5"), DEVICE, "rank 0", "host",
                               "--device cuda: expected a GPU, found none", "use --device cpu", env=env)
        self.assertNotIn("no-such-file", message)
        if "CUDA" not in versions:
            self.assertIn("built without CUDA", message)
        self.assert_absent("run")
        for command in (["bench", *SMALL[:4], "--data", "hdf5:no-such-file.h5"],):
            self.refused(1, [*command, "--device", "cuda"], DEVICE, "expected a GPU, found none", env=env)


class ConfigFile(RefusalCase):
    """C03."""

    def refused_file(self, text, *words):
        (self.folder / "run.ini").write_text(text)
        self.refused_alone(self.train("--config", "run.ini"), SETTINGS, *words)
        self.assert_absent("run")

    def test_C03_wrong_lines(self):
        self.refused_file("epochs = 5\nlearning_rte = 0.1\n", "run.ini:2: learning_rte: unknown option")
        self.refused_file("# a comment\n\nepoch = 5\n", "run.ini:3: epoch: unknown option", "did you mean epochs?")
        self.refused_file("epochs = five\n", 'run.ini:1: epochs: expected an integer', 'found "five"')
        self.refused_file("epochs\n", "run.ini:1:", 'found "epochs"')
        self.refused_file("= 5\n", "run.ini:1:", 'found "= 5"')
        self.refused_file("[train]\nepochs = 5\n", "run.ini:1:", "[train]")
        self.refused_file("epochs = 5\nlr = 0.1\nepochs = 6\n", "run.ini:3: epochs: expected once", "line 1")
        self.refused_file("config = other.ini\n", "run.ini:1: config:")
        self.refused_file("bench-steps = 0\n", "run.ini:1: bench-steps")

    def test_C03_told_once_on_several_ranks(self):
        (self.folder / "run.ini").write_text("learning_rte=0.1\nepochs=5\n")
        self.refused(3, self.train("--config", "run.ini", "--epochs", "2"), SETTINGS, "run.ini:1: learning_rte")

    def test_C03_no_such_file(self):
        (self.folder / "folder").mkdir()
        (self.folder / "binary.ini").write_bytes(bytes(range(256)))
        self.refused_alone(self.train("--config", "no.ini"), SETTINGS, '--config', '"no.ini"')
        self.refused_alone(self.train("--config", "folder"), SETTINGS, '--config', '"folder"')
        self.refused_alone(self.train("--config", "binary.ini"), SETTINGS, "binary.ini:1:")
        self.refused_alone(self.train("--config="), SETTINGS, "--config")

    def test_C03_command_line_wins_and_origins_are_kept(self):
        (self.folder / "run.ini").write_text("epochs = 5\nlr = 0.025\nbench-steps = 7\n")
        self.mpirun(2, *self.train("--config", "run.ini", "--epochs", "2"), check=DONE)
        self.assertEqual(self.summary()["step"], 8)
        self.assertEqual(self.metrics()[-1]["lr"], 0.025)
        stored = (self.folder / "run/config.ini").read_text()
        self.assertEqual(stored, read_attributes(self.checkpoints()[-1], "/run")["config"])
        origins, origin = {}, None
        for line in stored.splitlines()[1:]:
            if line.startswith("# "):
                origin = line[2:]
            elif line:
                origins[line.split(" = ")[0]] = (line.split(" = ")[1], origin)
        self.assertEqual(origins["epochs"], ("2", "command line"))
        self.assertEqual(origins["lr"], ("0.025", "config file"))
        self.assertEqual(origins["momentum"], ("0.9", "default"))


class CheckpointInput(RefusalCase):
    """Checkpoints that do not belong to what is asked."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        case = cls()
        case.folder, case.jobs = cls.class_folder, 0
        case.mpirun(2, *case.train("--steps", 8, "--checkpoint-every", 4, out="first"), check=DONE)
        cls.file = cls.class_folder / "first/checkpoints/step-00000008.h5"
        case.doCleanups()

    def resume(self, *options, out="run"):
        return ["train", "--resume", self.file, "--out", out, *options]

    def test_resume_of_other_settings(self):
        for option, value, was in (("--hidden", "32", "16"), ("--optimizer", "adamw", "sgd"), ("--batch", "32", "16"),
                                   ("--seed", "7", "1"), ("--model", "lenet", "mlp"), ("--shuffle", "off", "on")):
            self.refused(2 if option == "--hidden" else 1, self.resume(f"{option}={value}"), CHECKPOINT,
                         f'{option}: checkpoint "{was}", now "{value}" (command line)')
            self.assert_absent("run")
        message = self.refused(1, self.resume("--hidden", "32", "--optimizer", "adamw", "--batch", "32"), CHECKPOINT)
        self.assertEqual(message.count("checkpoint \""), 3, message)

    def test_resume_with_data_of_another_shape(self):
        for data in ("synthetic:64x4x4x1x4", "synthetic:64x8x8x1x5"):
            self.refused(2, self.resume("--data", data), CHECKPOINT, self.file.name, "the data it was trained on")
            self.assert_absent("run")

    def test_fewer_steps_than_are_done(self):
        shutil.copytree(self.file.parents[1], self.folder / "run")
        before = sorted(self.tree("run/checkpoints").items())
        result = self.mpirun(2, "train", "--resume", "latest", "--out", "run", "--steps", 4, check=DONE)
        self.assertEqual(len(result.lines("nothing to do")), 1, result)
        self.assertTrue(sorted(self.tree("run/checkpoints").items()) == before)
        self.assertEqual(self.summary()["step"], 8)

    def test_files_that_are_no_checkpoints(self):
        self.write_hdf5("data.h5")
        (self.folder / "text.h5").write_text("hello")
        (self.folder / "folder").mkdir()
        for name in ("data.h5", "text.h5", "folder", "none.h5", "lastest"):
            self.refused(2, ["train", "--resume", name, "--out", "run"], CHECKPOINT, name)
            self.refused(1, self.train("--init-from", name), CHECKPOINT, name)
            self.refused(1, ["eval", "--checkpoint", name], CHECKPOINT, name)
            self.refused_alone(["inspect", name], CHECKPOINT, name)
            self.assert_absent("run")

    def test_weights_of_another_model(self):
        for options in (["--hidden", "32"], ["--hidden", "16,16"]):
            start = ["train", "--model", "mlp", *options, *TINY, "--threads", "1", "--out", "run"]
            self.refused(2, [*start, "--init-from", self.file], CHECKPOINT, self.file.name, "fc1.weight" if options[1] == "32"
                         else "fc2.weight")
            self.assert_absent("run")

    def test_eval_on_data_of_another_shape(self):
        for data in ("synthetic:64x4x4x1x4", "synthetic:64x8x8x3x4"):
            self.refused(3, ["eval", "--checkpoint", self.file, "--data", data], DATA, data, "8")
        self.refused(2, ["eval", "--checkpoint", self.file, "--data", "hdf5:none.h5"], DATA, "none.h5")
        self.write_hdf5("ten.h5", classes=10)
        self.refused(2, ["eval", "--checkpoint", self.file, "--data", "hdf5:ten.h5"], DATA, "ten.h5", "0..3")


class OutputPlaces(RefusalCase):
    """C07, C11: every output place is tested before the first step."""

    def test_C07_out_is_no_folder(self):
        (self.folder / "file").write_text("mine")
        self.refused(2, self.train(out="file"), SETTINGS, "--out file", "expected a folder")
        self.refused(2, self.train(out="file/run"), CHECKPOINT, "--out file/run", "Not a directory")
        self.assertEqual((self.folder / "file").read_text(), "mine")

    def test_C07_out_cannot_be_made(self):
        self.refused(2, self.train(out="/proc/nowhere/run"), CHECKPOINT, "--out /proc/nowhere/run")
        self.refused(1, self.train(out="x" * 300), CHECKPOINT, "File name too long")

    def test_C07_a_folder_where_a_file_is_to_be(self):
        for name in ("metrics.jsonl", "ranks.jsonl", "config.ini", "summary.json", "trace.json"):
            (self.folder / "run" / name).mkdir(parents=True)
            result = self.mpirun(2, *self.train("--trace", "1:3", "--steps", 4))
            self.assert_refused(result, SETTINGS, name, "expected a file, found a folder")
            self.assertEqual([path.name for path in (self.folder / "run").iterdir()], [name])
            shutil.rmtree(self.folder / "run")

    def test_C07_a_file_where_the_folder_of_checkpoints_is_to_be(self):
        (self.folder / "run").mkdir()
        (self.folder / "run/checkpoints").write_text("mine")
        result = self.mpirun(2, *self.train("--steps", 4))
        self.assertIn(result.rc, (SETTINGS, CHECKPOINT))
        self.assert_refused(result, result.rc, "checkpoints")
        self.assertEqual(self.tree(), {"checkpoints": b"mine"})

    def test_C07_results_of_a_benchmark(self):
        bench = ["bench", *SMALL[:4], "--data", "synthetic:64x8x8x1x4", "--batch", 16, "--bench-steps", 2, "--json"]
        (self.folder / "folder").mkdir()
        for path, code in (("folder", SETTINGS), ("folder/", SETTINGS), ("no/such/folder/b.json", CHECKPOINT)):
            result = self.mpirun(2, *bench, path)
            self.assert_refused(result, code, "--json", path.rstrip("/"))
            self.assertEqual(result.out, "")
        self.mpirun(2, *bench, "b.json", check=DONE)
        self.assertTrue((self.folder / "b.json").exists())

    def fingerprints(self):
        files = [path for path in (self.folder / "run").rglob("*") if path.is_file()]
        return {str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in files}

    def test_C11_a_second_run_changes_nothing(self):
        self.mpirun(2, *self.train("--steps", 4), check=DONE)
        before = self.fingerprints()
        message = self.refused(2, self.train("--steps", 9), SETTINGS, "--out run", "last step 4", "--resume latest", "--replace")
        self.assertRegex(message, r"started \d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
        # Nor does one that fails before it could replace the old one.
        self.refused(2, self.train("--replace", data="hdf5:none.h5"), DATA, "none.h5")
        self.assertEqual(self.fingerprints(), before)
        # The new run may begin with what it replaces.
        self.mpirun(2, *self.train("--replace", "--steps", 1, "--init-from", "run/checkpoints/step-00000004.h5"), check=DONE)
        self.assertEqual([file.name for file in self.checkpoints()], ["step-00000001.h5"])


if __name__ == "__main__":
    refusal.run()
