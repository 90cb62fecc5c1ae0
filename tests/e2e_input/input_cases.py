#!/usr/bin/env python3
"""Wrong command lines, config files, data, checkpoints and output places: each is refused before the first step."""
import gzip
import hashlib
import shutil

import h5py
import numpy as np

import refusal
from refusal import SMALL, TINY, RefusalCase, runner
from runner import CHECKPOINT, DATA, DEVICE, DONE, SETTINGS, idx_bytes, random_samples, read_attributes

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


class IdxData(RefusalCase):
    """D07 and kin: folders of IDX files."""

    IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"

    def first_loss(self, data, *options):
        out = f"loss{len(list(self.folder.glob('loss*')))}"
        self.mpirun(1, *self.train("--steps", 1, "--eval-every", 0, *options, out=out, data=data), check=DONE)
        return self.metrics(out)[0]["loss"]

    def refused_data(self, *words, ranks=1, options=()):
        message = self.refused(ranks, self.train(*options, data="idx:idx"), DATA, *words)
        self.assert_absent("run")
        return message

    def test_D07_the_format_is_told_by_the_content(self):
        self.write_idx("idx", size=8, classes=4)
        raw = self.first_loss("idx:idx")
        self.write_idx("zipped", size=8, classes=4, compress=True)
        self.assertEqual(self.first_loss("idx:zipped"), raw)
        # gzip without the ending, and the ending without gzip.
        for name in (self.IMAGES, self.LABELS):
            (self.folder / "zipped" / (name + ".gz")).rename(self.folder / "zipped" / name)
            (self.folder / "idx" / name).rename(self.folder / "idx" / (name + ".gz"))
        self.assertEqual(self.first_loss("idx:zipped"), raw)
        self.assertEqual(self.first_loss("idx:idx"), raw)

    def test_D07_other_content(self):
        folder = self.write_idx("idx", size=8, compress=True)
        images = folder / (self.IMAGES + ".gz")
        good = images.read_bytes()
        images.write_text("<!DOCTYPE html><html><body>" + "404 not found " * 48 + "</body></html>")
        message = self.refused_data(images.name, "expected an IDX file", "0x3c", "<!DO", ranks=3)
        self.assertIn("raw or gzip", message)
        images.write_bytes(b"")
        self.refused_data(images.name, "an empty file")
        images.write_bytes(good[:len(good) // 2])
        self.refused_data(images.name, "damaged or truncated")
        images.write_bytes(good[:200] + bytes(40) + good[240:])
        self.refused_data(images.name, "gzip")
        images.write_bytes(gzip.compress(good))  # compressed twice
        self.refused_data(images.name, "0x1f 0x8b")
        images.write_bytes(gzip.compress(gzip.decompress(good)[:-7]))
        self.refused_data(images.name, "expected 4096 bytes", "found 4089")
        images.write_bytes(gzip.compress(gzip.decompress(good) + b"x"))
        self.refused_data(images.name, "found more")
        images.unlink()
        images.mkdir()
        self.refused_data(images.name, "a folder")

    def test_headers(self):
        folder = self.write_idx("idx", size=8)
        images, labels = folder / self.IMAGES, folder / self.LABELS
        good = images.read_bytes()
        images.write_bytes(bytes([0, 0, 13]) + good[3:])  # float elements
        self.refused_data(images.name, "unsigned bytes")
        images.write_bytes(good[:10])
        self.refused_data(images.name, "header")
        images.write_bytes(good[:4] + (0).to_bytes(4, "big") + good[8:])
        self.refused_data(images.name, "0 elements")
        images.write_bytes(good[:4] + b"\xff" * 12 + good[16:])  # more than there is memory
        self.refused_data(images.name)
        images.write_bytes(labels.read_bytes())
        self.refused_data(images.name, "3 dimensions")

    def test_counts_and_missing_files(self):
        folder = self.write_idx("idx", size=8)
        labels = folder / self.LABELS
        labels.write_bytes(idx_bytes(np.zeros(63)))
        self.refused_data(labels.name, "64", "found 63", ranks=2)
        labels.unlink()
        self.refused_data("idx", f"expected a file {self.LABELS}", "found none")
        (folder / self.IMAGES).unlink()
        message = self.refused_data(self.LABELS, self.IMAGES, "2 of 4")
        self.assertNotIn("t10k", message)
        shutil.rmtree(folder)
        self.refused_data("idx", "expected a folder", "found none")
        folder.mkdir()
        self.refused_data("idx", self.IMAGES)
        shutil.rmtree(folder)
        folder.write_text("a file")
        self.refused_data("idx", "expected a folder")

    def test_every_bad_file_is_told(self):
        folder = self.write_idx("idx", size=8)
        for name in (self.IMAGES, "t10k-labels-idx1-ubyte"):
            (folder / name).write_text("<html>")
        self.refused_data(self.IMAGES, "t10k-labels-idx1-ubyte", "2 of 4")

    def test_D05_labels(self):
        folder = self.write_idx("idx", size=8)
        values = np.arange(64) % 10
        values[37] = 10
        (folder / self.LABELS).write_bytes(idx_bytes(values))
        self.refused_data(self.LABELS, "sample 37", "0..9", "found 10", ranks=3, options=["--classes", 10])

    def test_other_test_pictures(self):
        self.write_idx("idx", size=8)
        self.write_idx("other", size=10)
        for file in (self.folder / "other").glob("t10k-*"):
            shutil.copy(file, self.folder / "idx")
        self.refused_data("test images", "8x8", "10x10")

    def test_kinds_of_data(self):
        for data in ("mnist", "idx", "idx:", "hdf5", "hdf5:", "hdf5:a.h5,", "hdf5:,", "foo:bar", ":", "synthetic:0",
                     "synthetic:-4", "synthetic:64x8", "synthetic:64x8x8x1x", "synthetic:64x8x8x1x1", "synthetic:many",
                     "synthetic:64x8x8x1x4x5", "synthetic:64x0x8x1", "hdf5:a.h5;test="):
            self.refused(1, self.train(data=data), SETTINGS, "expected", f"'{data.partition(':')[2]}'"
                         if data.startswith(("synthetic:", "hdf5:a", "hdf5:,")) else f"'{data}'")
            self.assert_absent("run")
        self.refused(2, self.train(data="fashion-mnist:nowhere"), DATA, "nowhere", "dataset-fashion-mnist")

    def test_models_that_do_not_fit_the_pictures(self):
        message = self.refused(2, ["train", "--model", "lenet", "--data", "synthetic:64x8x8x1x4", "--out", "run"], SETTINGS,
                               "lenet")
        self.assertIn("8", message)
        self.assert_absent("run")


class Hdf5Data(RefusalCase):
    """D05, D09, D11 and kin: HDF5 files."""

    def refused_data(self, *words, ranks=1, options=(), data="hdf5:d.h5"):
        message = self.refused(ranks, self.train(*options, data=data), DATA, *words)
        self.assert_absent("run")
        return message

    def first_loss(self, data):
        out = f"loss{len(list(self.folder.glob('loss*')))}"
        self.mpirun(1, *self.train("--steps", 1, "--eval-every", 0, out=out, data=data), check=DONE)
        return self.metrics(out)[0]["loss"]

    def test_D05_a_label_out_of_range(self):
        x, y = random_samples(np.random.default_rng(1), 2000, 8, 8, 10)
        y = y.astype(np.int32)
        for ranks, value in ((1, 10), (3, 10), (2, -1)):
            y[1234] = value
            file = self.write_hdf5("d.h5", x=x[..., None], y=y)
            message = self.refused_data("d.h5: dataset y: sample 1234", "0..9", f"found {value}", ranks=ranks,
                                        options=["--classes", 10])
            with h5py.File(file, "r+") as opened:
                opened["y"].attrs["classes"] = 10
            declared = self.refused_data("sample 1234", f"found {value}", ranks=ranks)
            self.assertEqual(message, declared)
        y[77:80] = -1
        self.write_hdf5("d.h5", x=x[..., None], y=y)
        self.refused_data("sample 77", "found -1", "3 more")

    def test_D09_every_truncated_shard_is_told(self):
        names = [f"shard{i}.h5" for i in range(1, 7)]
        for i, name in enumerate(names):
            self.write_hdf5(name, count=100, seed=i)
        data = "hdf5:" + ",".join(names)
        for bad in (["shard5.h5"], ["shard2.h5", "shard5.h5"]):
            for name in bad:
                path = self.folder / name
                if path.stat().st_size > 7000:
                    with open(path, "r+b") as file:
                        file.truncate(path.stat().st_size - 1000)
            message = self.refused_data(*bad, ranks=3, data=data)
            for name in set(names) - set(bad):
                self.assertNotIn(name, message)
            self.assert_absent("run")
        self.assertIn("2 of 6 data files", message)
        (self.folder / "kept").mkdir()
        self.refused(2, self.train(out="kept/run", data=data), DATA, *bad)
        self.assertEqual(list((self.folder / "kept").iterdir()), [])

    def test_D11_the_container_does_not_change_the_loss(self):
        folder = self.write_idx("idx", size=8, classes=4)
        pictures, labels = random_samples(np.random.default_rng(1), 64, 8, 8, 4)
        self.assertEqual((folder / IdxData.IMAGES).read_bytes(), idx_bytes(pictures))
        pictures = pictures[..., None]
        scaled = (pictures / np.float32(255)).astype(np.float32)
        self.write_hdf5("u1.h5", x=pictures, y=labels)
        self.write_hdf5("f4.h5", x=scaled, y=labels.astype(np.int64))
        self.write_hdf5("big.h5", x=scaled.astype(">f4"), y=labels.astype(">i2"))
        self.write_hdf5("f8.h5", x=scaled.astype(">f8"), y=labels.astype("<u4")[:, None])
        self.write_hdf5("flat.h5", x=pictures.reshape(64, 64), y=labels)
        idx = self.first_loss("idx:idx")
        self.assertEqual(self.first_loss("hdf5:u1.h5"), idx)
        self.assertEqual(self.first_loss("hdf5:flat.h5"), idx)
        floats = self.first_loss("hdf5:f4.h5")
        self.assertAlmostEqual(floats, idx, delta=1e-6)
        self.assertEqual(self.first_loss("hdf5:big.h5"), floats)
        self.assertEqual(self.first_loss("hdf5:f8.h5"), floats)

    def test_D11_the_scaling_rule_is_told(self):
        self.write_hdf5("u1.h5")
        self.write_hdf5("f4.h5", x=np.random.default_rng(1).random((64, 8, 8, 1), np.float32))
        for name, scaled in (("u1", True), ("f4", False)):
            told = self.mpirun(2, *self.train("--steps", 1, out=name, data=f"hdf5:{name}.h5"), check=DONE).out
            told = [line for line in told.splitlines() if line.startswith("data ")]
            self.assertEqual(len(told), 1)
            self.assertEqual("1/255" in told[0], scaled, told)

    def test_D11_other_types(self):
        for x, name in ((np.zeros((64, 8, 8), np.int64), "int64"), (np.zeros((64, 8, 8), np.int8), "int8"),
                        (np.zeros((64, 8, 8), ">u2"), "uint16"), (np.zeros((64, 8, 8), np.float16), "float16"),
                        (np.zeros((64, 8, 8), [("a", "f4"), ("b", "f4")]), "compound"),
                        (np.full((64, 8, 8), b"pixel"), "string"), (np.zeros((64, 8, 8), bool), "enumeration"),
                        (np.zeros((64, 8, 8), np.complex64), "compound")):
            self.write_hdf5("d.h5", x=x)
            self.refused_data("d.h5: dataset x", f"found {name}", "uint8, float32 or float64")
        for y, name in ((np.zeros(64, np.float32), "float32"), (np.full(64, b"cat"), "string"),
                        (np.zeros(64, [("a", "i4")]), "compound")):
            self.write_hdf5("d.h5", y=y)
            self.refused_data("d.h5: dataset y", f"found {name}", "integer type")

    def test_datasets_and_shapes(self):
        for x, y, words in ((np.zeros(64, np.uint8), None, ["dataset x", "[64]"]),
                            (np.zeros((64, 2, 2, 2, 2), np.uint8), None, ["dataset x", "[n, h, w, c]"]),
                            (np.zeros((0, 8, 8), np.uint8), np.zeros(0, np.uint8), ["dataset x", "at least one sample"]),
                            (np.zeros((64, 8, 0), np.uint8), None, ["dataset x"]),
                            (None, np.zeros(63, np.uint8), ["dataset y", "[64]", "[63]"]),
                            (None, np.zeros((64, 10), np.uint8), ["dataset y", "[64, 10]"])):
            self.write_hdf5("d.h5", x=x, y=y)
            self.refused_data("d.h5", *words)
        for name in ("x", "y"):
            with h5py.File(self.write_hdf5("d.h5"), "r+") as file:
                file.move(name, "images")
            self.refused_data(f"d.h5: dataset {name}", "images")
        with h5py.File(self.write_hdf5("d.h5"), "r+") as file:
            del file["x"]
            file.create_group("x")
        self.refused_data("d.h5: dataset x")

    def test_files(self):
        self.refused_data("none.h5", "No such file", data="hdf5:none.h5", ranks=2)
        (self.folder / "d.h5").mkdir()
        self.refused_data("d.h5")
        (self.folder / "d.h5").rmdir()
        for content in (b"", b"<html>404</html>", b"\x89HDF\r\n\x1a\n" + bytes(100)):
            (self.folder / "d.h5").write_bytes(content)
            self.refused_data("d.h5")

    def test_shards_that_differ(self):
        self.write_hdf5("a.h5", size=8)
        self.write_hdf5("b.h5", size=10)
        self.write_hdf5("c.h5", x=np.zeros((64, 8, 8, 1), np.float32))
        self.refused_data("b.h5", "c.h5", "a.h5", data="hdf5:a.h5,b.h5,c.h5", ranks=2)
        self.refused_data("b.h5", data="hdf5:a.h5;test=b.h5")

    def test_N01_a_sample_that_is_not_finite(self):
        for bad in (np.nan, np.inf):
            x = np.random.default_rng(1).random((200, 8, 8, 1), np.float32)
            x[123, 4, 5] = bad
            self.write_hdf5("d.h5", x=x, y=np.arange(200) % 4)
            self.refused_data("d.h5: dataset x: sample 123", "finite", str(bad), ranks=2)

    def test_keep_best_without_test_data(self):
        self.write_hdf5("d.h5")
        self.refused(2, self.train("--keep-best", "loss", data="hdf5:d.h5"), SETTINGS, "--keep-best", "test=FILE")
        self.assert_absent("run")


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
